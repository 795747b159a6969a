import java.util.Random;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.PhraseQuery;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.store.ByteBuffersDirectory;

/** Indexes documents of random words, then searches them. */
public class Lucene {
    public static void main(String[] args) throws Exception {
        int documents = Integer.parseInt(args[0]);
        Random random = new Random(1);
        ByteBuffersDirectory directory = new ByteBuffersDirectory();
        try (IndexWriter writer = new IndexWriter(directory, new IndexWriterConfig(new StandardAnalyzer()))) {
            for (int i = 0; i < documents; i++) {
                StringBuilder text = new StringBuilder();
                for (int w = 0; w < 60; w++) text.append(word(random)).append(w % 12 == 11 ? ". " : " ");
                Document document = new Document();
                document.add(new TextField("body", text.toString(), Field.Store.YES));
                writer.addDocument(document);
            }
        }
        long hits = 0;
        try (DirectoryReader reader = DirectoryReader.open(directory)) {
            IndexSearcher searcher = new IndexSearcher(reader);
            for (int i = 0; i < documents; i++) {
                hits += searcher.search(new TermQuery(new Term("body", word(random))), 10).totalHits.value;
                hits += searcher.search(new PhraseQuery("body", word(random), word(random)), 10).totalHits.value;
                hits += searcher.search(new BooleanQuery.Builder()
                    .add(new TermQuery(new Term("body", word(random))), BooleanClause.Occur.MUST)
                    .add(new TermQuery(new Term("body", word(random))), BooleanClause.Occur.SHOULD)
                    .build(), 10).totalHits.value;
            }
        }
        System.out.println(hits);
    }

    static String word(Random random) {
        int n = (int) Math.min(900, Math.abs(random.nextGaussian()) * 200);
        return "word" + (char) ('a' + n % 26) + n;
    }
}
